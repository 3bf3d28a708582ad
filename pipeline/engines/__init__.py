"""Engines: what samples from a language model and scores text with it, exactly, vLLM or plain torch."""
