"""`dasp explain`: models and data from files are explained in chunks that survive being killed, here or on Ray."""
