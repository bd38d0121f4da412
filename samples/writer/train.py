"""Train the model on texts: python train.py FILE... writes weights.safetensors. Takes minutes on two cores.

The weights here were trained on this project's own pages (docs/*.md, README.md, CHANGELOG.md, CONTRIBUTING.md).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from model import CHARACTERS, WEIGHTS, Writer, empty_cache
from safetensors.torch import save_file
from torch.nn import functional

STEPS, BATCH, LENGTH = 4000, 24, 160


def main() -> None:
    torch.manual_seed(0)
    text = "\n".join(Path(name).read_text() for name in sys.argv[1:])
    data = torch.tensor([CHARACTERS.index(c) for c in text if c in CHARACTERS])
    model = Writer()
    rates = {"max_lr": 6e-3, "total_steps": STEPS}
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, **rates)
    batched = torch.func.vmap(lambda characters: model(characters, empty_cache(), empty_cache())[0])
    for step in range(STEPS):
        start = torch.randint(len(data) - LENGTH - 1, (BATCH,))
        taken = torch.stack([data[s : s + LENGTH + 1] for s in start])
        loss = functional.cross_entropy(batched(taken[:, :-1]).flatten(0, 1), taken[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0:
            print(f"step {step}: {loss.item():.3f} nats a character", flush=True)
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, WEIGHTS)


if __name__ == "__main__":
    main()
