"""Energy models: presets, networks, first weights, inputs, objectives, folders."""
