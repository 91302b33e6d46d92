"""`dasp explain`: models and data from files, explained in chunks that survive being killed, here or on Ray."""
