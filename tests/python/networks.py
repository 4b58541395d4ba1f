"""Networks as people convert them, with random weights: for tests (small) and for bench/conv_networks.py (full size)."""
import torch
from torch import nn


def liven(module):
    """Statistics and gains that keep a signal alive through many layers."""
    torch.manual_seed(1)
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.uniform_(-.2, .2)
            m.running_var.uniform_(.2, .6)
            nn.init.uniform_(m.weight, .7, 1.3)
            nn.init.uniform_(m.bias, -.2, .2)
    return module.eval()


def conv_bn(n_in, n_out, kernel=3, stride=1, groups=1, act=nn.ReLU6):
    return [nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(n_out), act()]


class Inverted(nn.Module):
    def __init__(self, n_in, n_out, stride, widen):
        super().__init__()
        n = n_in * widen
        self.adds = stride == 1 and n_in == n_out
        self.body = nn.Sequential(*(conv_bn(n_in, n, 1) if widen > 1 else []), *conv_bn(n, n, 3, stride, n),
                                  *conv_bn(n, n_out, 1, act=nn.Identity))

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet(classes=1000, stages=((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                                    (6, 320, 1, 1)), last=1280):
    layers, n = conv_bn(3, 32, 3, 2), 32
    for widen, n_out, repeats, stride in stages:
        for i in range(repeats):
            layers.append(Inverted(n, n_out, stride if i == 0 else 1, widen))
            n = n_out
    return liven(nn.Sequential(*layers, *conv_bn(n, last, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)))


class Residual(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.body = nn.Sequential(*conv_bn(n_in, n_out, 3, stride, act=nn.ReLU), *conv_bn(n_out, n_out, act=nn.Identity))
        same = stride == 1 and n_in == n_out
        self.side = nn.Identity() if same else nn.Sequential(*conv_bn(n_in, n_out, 1, stride, act=nn.Identity))

    def forward(self, x):
        return torch.relu(self.body(x) + self.side(x))


def resnet(classes=1000, widths=(64, 128, 256, 512)):
    layers, n = [*conv_bn(3, widths[0], 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)], widths[0]
    for i, width in enumerate(widths):
        layers += [Residual(n, width, 1 if i == 0 else 2), Residual(width, width, 1)]
        n = width
    return liven(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, classes)))


class Unet(nn.Module):
    def __init__(self, widths=(8, 16, 32)):
        super().__init__()
        self.down = nn.ModuleList(nn.Sequential(*conv_bn(a, b, act=nn.SiLU), *conv_bn(b, b, act=nn.SiLU))
                                  for a, b in zip((3, *widths), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(nn.Sequential(*conv_bn(2 * a, a, act=nn.SiLU)) for a in widths[:-1])
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for i in reversed(range(len(self.up))):
            x = self.join[i](torch.cat([kept[i], self.up[i](x)], 1))
        return nn.functional.interpolate(self.head(x), scale_factor=2, mode="bilinear", align_corners=False)


class ConvLstm(nn.Module):
    """Frames through convolutions, then through two recurrent layers in both directions."""

    def __init__(self, hidden=24):
        super().__init__()
        self.conv = nn.Sequential(*conv_bn(1, 8, 3, 2, act=nn.ReLU), *conv_bn(8, 4, 3, 2, act=nn.ReLU))
        self.lstm = nn.LSTM(4 * 16, hidden, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, 5)

    def forward(self, x):
        y = self.conv(x.reshape(-1, 1, 16, 16)).reshape(1, -1, 4 * 16)
        return self.head(self.lstm(y)[0])


class ConvGates(nn.Module):
    """A recurrent layer whose gates are convolutions over the image and the state before."""

    def __init__(self, hidden=6):
        super().__init__()
        self.hidden, self.gates, self.head = hidden, nn.Conv2d(1 + hidden, 4 * hidden, 3, 1, 1), nn.Conv2d(hidden, 2, 1)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], self.hidden, x.shape[2], x.shape[3])
        out = []
        for t in range(x.shape[1]):
            i, f, o, g = self.gates(torch.cat([x[:, t:t + 1], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            out.append(self.head(h))
        return torch.stack(out, 1)


class Vit(nn.Module):
    def __init__(self, width=48, depth=2, heads=4):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.first, self.place = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 17, width))
        self.blocks = nn.ModuleList(nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width),
                                                   nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)])
                                    for _ in range(depth))
        self.heads, self.head = heads, nn.Linear(width, 10)

    def forward(self, x):
        x = torch.cat([self.first, self.patch(x).flatten(2).transpose(1, 2)], 1) + self.place
        for norm, qkv, out, norm2, wide, back in self.blocks:
            q, k, v = qkv(norm(x)).reshape(1, 17, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + out(y.transpose(1, 2).reshape(1, 17, -1))
            x = x + back(nn.functional.gelu(wide(norm2(x))))
        return self.head(x[:, 0])
