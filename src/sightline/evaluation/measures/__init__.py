"""What is measured of a model beside its answers, only where it is asked for: one file each."""
