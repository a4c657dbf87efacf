"""Teachers behind an OpenAI-compatible endpoint: requests, replies, limits, the journal, and runs in parallel."""
