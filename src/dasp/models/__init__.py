"""Models as they come: how they are called, read from files, and wrapped as PyTorch modules.

This room lies below all others but `errors` and `formatting`, and imports nothing else.
"""
