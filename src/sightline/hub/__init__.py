"""Models as folders: loading, saving, fine-tuning and sharing them."""
