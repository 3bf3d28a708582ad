"""What every command stands on: settings, errors, files on any filesystem, locks, progress, Beam."""
