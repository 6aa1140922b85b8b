"""ResNet-18 and 34 in plain PyTorch, with torchvision's names, for the tests: torchvision need not be installed."""

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def resnet(torch, depth: int, classes: int, channels: int):
    nn = torch.nn

    def convolution(c_in, c_out, k, stride=1):
        return nn.Conv2d(c_in, c_out, k, stride, padding=k // 2, bias=False)

    class Block(nn.Module):
        def __init__(self, c_in, c_out, stride):
            super().__init__()
            self.conv1, self.bn1 = convolution(c_in, c_out, 3, stride), nn.BatchNorm2d(c_out)
            self.conv2, self.bn2 = convolution(c_out, c_out, 3), nn.BatchNorm2d(c_out)
            shape_changes = stride > 1 or c_in != c_out
            beside = nn.Sequential(convolution(c_in, c_out, 1, stride), nn.BatchNorm2d(c_out))
            self.downsample = beside if shape_changes else None

        def forward(self, x):
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + (self.downsample(x) if self.downsample else x))

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = convolution(channels, 64, 7, 2), nn.BatchNorm2d(64)
            below = 64
            for stage, count in enumerate(BLOCKS[depth], 1):
                width = 32 << stage
                first = Block(below, width, 1 if stage == 1 else 2)
                setattr(
                    self, f"layer{stage}", nn.Sequential(first, *(Block(width, width, 1) for _ in range(count - 1)))
                )
                below = width
            self.fc = nn.Linear(below, classes)

        def forward(self, x):
            x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(x.mean(dim=(2, 3)))

    return ResNet()
