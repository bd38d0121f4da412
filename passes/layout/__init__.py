"""Layouts of tensors: axes in another order, weights packed ahead."""
