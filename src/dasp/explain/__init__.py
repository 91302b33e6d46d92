"""`dasp explain`: models and data from files, explained in chunks that survive being killed, on one machine or many."""
