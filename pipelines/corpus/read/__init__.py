"""Readers: files and packages to documents, one kind of source a module. The step is `pipelines.corpus.read.step`."""
