"""What a task is: its loss and its metrics. The head belongs to the model."""
