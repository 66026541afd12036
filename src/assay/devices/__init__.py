"""The places where lanes run, and how a job gets there and back."""
