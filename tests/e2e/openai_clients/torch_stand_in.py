"""Stands in for the parts of PyTorch that guidellm needs to read its data. A real PyTorch is a download of gigabytes.

Importing this imports guidellm's data loader with the stand-in. All other packages see that PyTorch is missing.
"""

import sys
import types

import datasets  # noqa: F401
import transformers  # noqa: F401


class IterableDataset:
    def __class_getitem__(cls, _):
        return cls


class DataLoader:
    """Reads a dataset in this process, one row at a time."""

    def __class_getitem__(cls, _):
        return cls

    def __init__(self, dataset, collate_fn, **_):
        self.dataset, self.collate_fn = dataset, collate_fn

    def __iter__(self):
        return (self.collate_fn([row]) for row in self.dataset)


class Generator:
    def manual_seed(self, _):
        pass


def module(name, **members):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(members)
    return made


data = module("torch.utils.data", get_worker_info=lambda: None)
module("torch.utils.data.dataloader", DataLoader=DataLoader)
module("torch.utils.data.dataset", IterableDataset=IterableDataset)
module("torch", Generator=Generator, utils=module("torch.utils", data=data))
import guidellm.data.loaders.torch  # noqa: E402, F401

for name in [name for name in sys.modules if name.split(".")[0] == "torch"]:
    del sys.modules[name]
