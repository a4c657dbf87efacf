"""Exact and near duplicates of text, decided from hashes: kernels, sketches, bands, verification, clusters.

    tables   what a byte or a character means to a profile (text, code)
    compiled how numba compiles the kernels, and what happens where nothing can be cached
    blocks   64 bytes at a time inside compiled loops
    word_hashes  hashes of the words of one text
    kernel   white space, shingles and sketches of a whole Arrow batch in one compiled call
    sketch   the same with Arrow arrays in and numpy arrays out
    bands    bands and rows for a threshold, and the collision curve they give
    buckets  candidate pairs from equal bands, without quadratic blow-up
    verify   exact Jaccard similarity of the candidates' shingle sets
    cluster  union of verified pairs and the keeper of every cluster
    decide   all of it: sketches in, a verdict for every document out

Importing the package loads nothing heavy; importing a module that compiles takes numba's start (about a second).
"""
