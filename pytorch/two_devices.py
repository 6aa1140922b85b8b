"""A network whose layers lie on two devices: `python pytorch/two_devices.py`. Two GPUs, or the CPU twice.

Activations go up by `.to(device)`, and autograd brings the gradients back the same way. While one device works the
other waits. At the end nn.DataParallel, which shares the rows among the GPUs of *one* process: in each step it copies
the network to all of them and gathers the outputs on the first, by threads that wait for Python's lock. So PyTorch
advises DistributedDataParallel (ddp.py), a process for each GPU, which keeps its copy and sends gradients only.
"""

import torch
from torch import nn

from nncourse import datasets

RATE, STEPS = 0.1, 50


class OnTwoDevices(nn.Module):
    """64-192 on the first device, 192-10 on the second."""

    def __init__(self, low: torch.device, high: torch.device):
        super().__init__()
        torch.manual_seed(1)
        self.devices = low, high
        self.low, self.high = nn.Linear(64, 192), nn.Linear(192, 10)
        self.low.to(low)
        self.high.to(high)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        low, high = self.devices
        A = self.low(X.to(low)).relu()
        return self.high(A.to(high))


def cost_after(network: nn.Module, where: torch.device) -> float:
    """The cost on the digits after some steps; `where` the outputs are."""
    data = datasets.load("digits")
    X, labels = torch.tensor(data.X / 16), torch.tensor(data.labels).long().to(where)
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        cost = nn.functional.cross_entropy(network(X), labels)
        cost.backward()
        optimizer.step()
    return cost.item()


def main() -> None:
    count = torch.cuda.device_count()
    cpu = torch.device("cpu")
    low, high = (torch.device("cuda", 0), torch.device("cuda", 1)) if count > 1 else (cpu, cpu)
    there = torch.device("cuda", 0) if count else cpu
    print(f"layers on {low} and {high}: cost {cost_after(OnTwoDevices(low, high), high):.4f}")
    print(f"on one device:        cost {cost_after(OnTwoDevices(there, there), there):.4f}")
    torch.manual_seed(1)
    copied = nn.DataParallel(nn.Sequential(nn.Linear(64, 192), nn.ReLU(), nn.Linear(192, 10)).to(there))
    print(f"nn.DataParallel, GPUs: {count}: cost {cost_after(copied, there):.4f}")


if __name__ == "__main__":
    main()
