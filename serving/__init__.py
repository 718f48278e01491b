"""Using a trained checkpoint: generation; later the terminal chat and the Telegram bot."""
