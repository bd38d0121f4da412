"""Attention as one kernel of a GPU: softmax(score(q @ k.T)) @ v, tile of keys by tile of keys.

The softmax is computed online (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018): a running
maximum and a running sum for each query, by which what is added up so far is scaled where the maximum grows. So the
scores of a tile of keys live in registers, and never in memory (T. Dao et al., "FlashAttention", 2022); the division by
the sum comes last.
"""
