"""PyTorch modules of well-known networks, as their papers have them, for capture."""

import torch
import torch.nn.functional as F
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        blocks, inputs = [], 64
        for stage, (depth, width) in enumerate(zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True)):
            for block in range(depth):
                blocks.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class VGG16(nn.Module):
    def __init__(self):
        super().__init__()
        layers, inputs = [], 3
        for depth, width in zip((2, 2, 3, 3, 3), (64, 128, 256, 512, 512), strict=True):
            for _ in range(depth):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 1000),
        )  # fmt: skip

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class Bert(nn.Module):
    """Encoder with pooler; attention is the library's module."""

    def __init__(self, blocks=12, hidden=768, heads=12, vocabulary=30522):
        super().__init__()
        self.word = nn.Embedding(vocabulary, hidden)
        self.position = nn.Embedding(512, hidden)
        self.kind = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(
                hidden, heads, 4 * hidden, activation="gelu", batch_first=True
            ),
            blocks, enable_nested_tensor=False,
        )  # fmt: skip
        self.pooler = nn.Linear(hidden, hidden)

    def forward(self, tokens, kinds):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.word(tokens) + self.position(places) + self.kind(kinds))
        return torch.tanh(self.pooler(self.encoder(x)[:, 0]))


class GPT2Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.c_attn, self.c_proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU("tanh"), nn.Linear(4 * hidden, hidden),
            nn.Dropout(0.1),
        )  # fmt: skip

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (
            part.view(b, s, self.heads, h // self.heads).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(h, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, s, h))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Positions are added, and the vocabulary projection shares the token embedding."""

    def __init__(self, blocks=12, hidden=768, heads=12, vocabulary=50257, positions=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.h = nn.ModuleList(GPT2Block(hidden, heads) for _ in range(blocks))
        self.ln_f = nn.LayerNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens, targets=None):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class RMSNorm(nn.Module):
    """Written out, as released code has it."""

    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, hidden, heads, kv, width):
        super().__init__()
        self.heads, self.kv, self.width = heads, kv, hidden // heads
        self.input_norm, self.post_norm = RMSNorm(hidden), RMSNorm(hidden)
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, kv * self.width, bias=False)
        self.v_proj = nn.Linear(hidden, kv * self.width, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        y = self.input_norm(x)
        q = self.q_proj(y).view(b, s, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(y).view(b, s, self.kv, self.width).transpose(1, 2)
        v = self.v_proj(y).view(b, s, self.kv, self.width).transpose(1, 2)
        y = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + self.o_proj(y.transpose(1, 2).reshape(b, s, -1))
        y = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    def __init__(self, blocks, hidden, heads, kv, width, vocabulary, norm=True):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(LlamaBlock(hidden, heads, kv, width) for _ in range(blocks))
        self.norm = RMSNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.width = hidden // heads

    @torch.no_grad()
    def angles(self, tokens):
        steps = torch.arange(0, self.width, 2, device=tokens.device) / self.width
        places = torch.arange(tokens.shape[1], device=tokens.device)
        angle = torch.outer(places, 1.0 / 10000.0**steps)
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos(), angle.sin()

    def forward(self, tokens):
        cos, sin = self.angles(tokens)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


class Experts(nn.Module):
    """Each token goes to two experts, with fixed capacities (as GShard has it)."""

    def __init__(self, hidden, width, count, capacity):
        super().__init__()
        self.count, self.capacity = count, capacity
        self.router = nn.Linear(hidden, count, bias=False)
        self.up = nn.Parameter(torch.empty(count, hidden, width))
        self.down = nn.Parameter(torch.empty(count, width, hidden))

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        mask = F.one_hot(chosen, self.count).to(x.dtype)
        place = mask.flatten(1, 2).cumsum(1).view_as(mask) * mask
        slots = F.one_hot(place.long(), self.capacity).to(x.dtype)
        route = torch.einsum("bskec,bsk->bsec", slots, weights)
        taken = torch.einsum("bsec,bsh->becs", slots.sum(2), x)[..., :1]
        gathered = torch.einsum("bsec,bsh->ebch", route, x).flatten(1, 2)
        made = torch.bmm(F.silu(torch.bmm(gathered, self.up)), self.down)
        made = made.unflatten(1, (x.shape[0], self.capacity))
        return torch.einsum("bsec,ebch->bsh", route, made) + taken.sum() * 0


class TiedLookups(nn.Module):
    """Bags of two tables, a dense part, and their concatenation (a small DLRM)."""

    def __init__(self):
        super().__init__()
        self.first = nn.EmbeddingBag(1000, 16, mode="sum")
        self.second = nn.EmbeddingBag(500, 16, mode="sum")
        self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense, first, second):
        parts = [self.bottom(dense), self.first(first), self.second(second)]
        return self.top(torch.cat(parts, dim=1))
