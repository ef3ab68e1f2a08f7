"""The transformer and the tokens of include/lockstep/model.h and data.h, in plain PyTorch.

The same seed draws the same weights and the same tokens. So the modules, and the numbers that they draw, must come in the
same order here and there.
"""
import math

import torch
import torch.nn as nn

SUCCESSORS = 4


class Embedding(nn.Module):
    def __init__(self, vocabulary, sequence, dim):
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        self.position = nn.Embedding(sequence, dim)
        with torch.no_grad():
            for vectors in self.parameters():
                vectors.mul_(1 / math.sqrt(dim))

    def forward(self, tokens):
        return self.token(tokens) + self.position.weight[:tokens.size(1)]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.projection = nn.Linear(dim, dim)
        self.mlp_norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def attention(self, x):
        rows, length, dim = x.shape
        width = dim // self.heads
        query, key, value = self.qkv(x).reshape(rows, length, 3, self.heads, width).permute(2, 0, 3, 1, 4)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = query @ key.transpose(2, 3) / math.sqrt(width)
        shares = scores.masked_fill(later, -math.inf).softmax(3)
        return self.projection((shares @ value).transpose(1, 2).reshape(rows, length, dim))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(nn.functional.gelu(self.up(self.mlp_norm(x))))


class Output(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.norm = nn.LayerNorm(weight.size(1))
        self.weight = weight

    def forward(self, x):
        return nn.functional.linear(self.norm(x), self.weight)


def transformer(dim, depth, heads, vocabulary, sequence, tied):
    embedding = Embedding(vocabulary, sequence, dim)
    blocks = [Block(dim, heads) for _ in range(depth)]
    weight = embedding.token.weight if tied else nn.Linear(dim, vocabulary, bias=False).weight
    return nn.Sequential(embedding, *blocks, Output(weight))


def tokens(rows, sequence, vocabulary):
    """Inputs and targets."""
    count = min(vocabulary, SUCCESSORS)
    order = torch.randperm(vocabulary)
    token = torch.randint(0, vocabulary, (rows,))
    drawn = torch.rand(rows, sequence)
    successor = torch.zeros(rows, sequence, dtype=torch.int64)
    bound = 0
    for i in range(count - 1):
        bound += 2 ** (count - 1 - i) / (2 ** count - 1)
        successor += drawn >= bound
    chain = [token]
    for i in range(sequence):
        token = order[(token + successor[:, i]) % vocabulary]
        chain.append(token)
    chain = torch.stack(chain, 1)
    return chain[:, :-1].contiguous(), chain[:, 1:].contiguous()
