"""Attention as one GPU kernel: softmax(score(q @ k.T)) @ v, one tile of keys after another.

The softmax is computed online (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018): each
query keeps a running maximum and a running sum, and the accumulated result is rescaled whenever the maximum grows. The
scores of a tile of keys stay in registers and never reach memory (T. Dao et al., "FlashAttention", 2022). The division
by the sum comes last.
"""
