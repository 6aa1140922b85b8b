"""What notebooks use and display: exercises, timing tables, plots and widgets."""
