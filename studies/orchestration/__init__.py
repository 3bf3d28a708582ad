"""Studies as graphs of commands, and every command by its name."""
