"""What a notebook shows: timing tables and plots."""
