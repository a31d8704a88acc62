"""Terminal tables, plots and the HTML report: they read rows and arrays, and never import torch."""
