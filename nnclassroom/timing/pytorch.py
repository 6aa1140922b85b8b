"""PyTorch's equivalents of the course's operations, for timing comparisons if PyTorch is installed."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from nncourse.calls import ADAM

Tensor = Any  # of PyTorch, which need not be installed


def installed(device: str) -> ModuleType | None:
    """The torch module if it is installed and can use the device, else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if device == "cpu" or torch.cuda.is_available() else None


def counterpart(operation: str, torch: ModuleType) -> Callable[..., Any] | None:
    """A function of tensors that computes the operation in PyTorch's usual way; None if there is none.

    Scalar arguments (a learning rate, a number of classes) are passed as Python numbers.
    """
    F, aten = torch.nn.functional, torch.ops.aten

    def convolution(A: Tensor, W: Tensor, b: Tensor, stride: int, before: int, after: int) -> Tensor:
        padded = A if before == after else F.pad(A, (before, after, before, after))
        return F.conv2d(padded, W, b, stride, padding=before if before == after else 0)

    def weight_gradient(D: Tensor, A: Tensor, k: int, stride: int, before: int, after: int) -> Tensor:
        padded = A if before == after else F.pad(A, (before, after, before, after))
        shape, padding = (D.shape[1], A.shape[1], k, k), before if before == after else 0
        return torch.nn.grad.conv2d_weight(padded, shape, D, stride, padding) / len(D)

    def input_gradient(D: Tensor, W: Tensor, h_in: int, w_in: int, stride: int, before: int, after: int) -> Tensor:
        if before == after:
            return torch.nn.grad.conv2d_input((len(D), W.shape[1], h_in, w_in), W, D, stride, before)
        padded = len(D), W.shape[1], h_in + before + after, w_in + before + after
        G = torch.nn.grad.conv2d_input(padded, W, D, stride)
        return G[:, :, before : before + h_in, before : before + w_in].contiguous()

    def maxpool_backward(
        D: Tensor, places: Tensor, h_in: int, w_in: int, size: int, stride: int, padding: int
    ) -> Tensor:
        images = D.new_empty((*D.shape[:2], h_in, w_in))  # only their shape counts
        window = [size] * 2, [stride] * 2, [padding] * 2, [1, 1], False
        return aten.max_pool2d_with_indices_backward(D, images, *window, places.long())

    def averagepool_backward(D: Tensor, h_in: int, w_in: int, size: int, stride: int) -> Tensor:
        images = D.new_empty((*D.shape[:2], h_in, w_in))
        return aten.avg_pool2d_backward(D, images, [size] * 2, [stride] * 2, [0, 0], False, True, None)

    def batchnorm(A: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
        return F.batch_norm(A, mean, variance, gamma, beta, eps=epsilon)

    def batchnorm_gradients(
        D: Tensor, A: Tensor, mean: Tensor, variance: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        scale = (variance + epsilon).rsqrt()
        mask = [False, True, True]
        found = aten.native_batch_norm_backward(D, A, None, None, None, mean, scale, True, epsilon, mask)
        return found[1] / len(D), found[2] / len(D)

    def batchnorm_backward(
        D: Tensor,
        A: Tensor,
        mean: Tensor,
        variance: Tensor,
        gamma: Tensor,
        dgamma: Tensor,
        dbeta: Tensor,
        epsilon: float,
    ) -> Tensor:
        scale = (variance + epsilon).rsqrt()
        if D.is_cuda:
            numbers = torch.tensor([A.numel() // len(mean)], dtype=torch.int32, device=D.device)
            sums = len(D) * dbeta, len(D) * dgamma / scale
            return aten.batch_norm_backward_elemt(D, A, mean, scale, gamma, *sums, numbers)
        channels = (slice(None), None, None)
        normal = (A - mean[channels]) * scale[channels]
        means = (dbeta[channels] + normal * dgamma[channels]) / (A.shape[2] * A.shape[3])
        return (gamma * scale)[channels] * (D - means)

    def attention(Q: Tensor, K: Tensor, V: Tensor, causal: int) -> tuple[Tensor, Tensor]:
        scores, t = Q @ K.mT / Q.shape[3] ** 0.5, Q.shape[2]
        hidden = torch.ones(t, t, dtype=torch.bool, device=Q.device).triu(1)
        P = torch.softmax(scores.masked_fill_(hidden, -torch.inf) if causal else scores, dim=3)
        return P @ V, P

    def attention_backward(D: Tensor, Q: Tensor, K: Tensor, V: Tensor, P: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dS = aten._softmax_backward_data(D @ V.mT, P, 3, P.dtype).div_(Q.shape[3] ** 0.5)
        return dS @ K, dS.mT @ Q, P.mT @ D

    def adam(
        W: Tensor,
        G: Tensor,
        M: Tensor,
        V: Tensor,
        rate: float,
        c1: float,
        c2: float,
        beta1: float = ADAM["beta1"],
        beta2: float = ADAM["beta2"],
        epsilon: float = ADAM["epsilon"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        M.lerp_(G, 1 - beta1)
        V.mul_(beta2).addcmul_(G, G, value=1 - beta2)
        return W.addcdiv_(M, (V / c2).sqrt_().add_(epsilon), value=-rate / c1), M, V

    def momentum(W: Tensor, G: Tensor, V: Tensor, rate: float, momentum: float) -> tuple[Tensor, Tensor]:
        V.mul_(momentum).add_(G)
        return W.sub_(V, alpha=rate), V

    def rmsprop(W: Tensor, G: Tensor, V: Tensor, rate: float, beta: float, epsilon: float) -> tuple[Tensor, Tensor]:
        V.mul_(beta).addcmul_(G, G, value=1 - beta)
        return W.addcdiv_(G, V.sqrt().add_(epsilon), value=-rate), V

    def adagrad(W: Tensor, G: Tensor, V: Tensor, rate: float, epsilon: float) -> tuple[Tensor, Tensor]:
        V.addcmul_(G, G)
        return W.addcdiv_(G, V.sqrt().add_(epsilon), value=-rate), V

    return {
        "convolution_forward": convolution,
        "convolution_weight_gradient": weight_gradient,
        "convolution_bias_gradient": lambda D: D.sum(dim=(0, 2, 3)) / len(D),
        "convolution_input_gradient": input_gradient,
        "dense_forward": F.linear,
        "sigmoid": torch.sigmoid,
        "sigmoid_derivative": lambda z: (s := torch.sigmoid(z)) * (1 - s),
        "tanh": torch.tanh,
        "tanh_derivative": lambda z: 1 - torch.tanh(z) ** 2,
        "relu": torch.relu,
        "relu_derivative": lambda z: (z > 0).to(z.dtype),
        "step": lambda z: (z > 0).to(z.dtype),
        "leaky_relu": F.leaky_relu,
        "softplus": F.softplus,
        "gelu": lambda z: F.gelu(z, approximate="tanh"),
        "gelu_derivative": lambda z: aten.gelu_backward(torch.ones_like(z), z, approximate="tanh"),
        "softmax": lambda Z: torch.softmax(Z, dim=1),
        "mse": lambda A, Y: F.mse_loss(A, Y, reduction="sum") / (2 * len(A)),
        "mse_gradient": torch.sub,
        "mae": lambda A, Y: F.l1_loss(A, Y, reduction="sum") / len(A),
        "binary_cross_entropy": lambda Z, Y: F.binary_cross_entropy_with_logits(Z, Y, reduction="sum") / len(Z),
        "categorical_cross_entropy": F.cross_entropy,
        "cross_entropy_delta": torch.sub,
        "output_delta": torch.mul,
        "hidden_delta": lambda D, W, S: (D @ W) * S,
        "bias_gradient": lambda D: D.mean(dim=0),
        "weight_gradient": lambda D, A: D.T @ A / len(D),
        "embedding": lambda tokens, E, P: F.embedding(tokens, E) + P,
        "embedding_gradient": lambda tokens, D, kinds: (
            aten.embedding_dense_backward(D, tokens, kinds, -1, False) / len(D)
        ),
        "maxpool_forward": lambda A, size, stride, padding: F.max_pool2d(A, size, stride, padding, return_indices=True),
        "maxpool_backward": maxpool_backward,
        "averagepool_forward": F.avg_pool2d,
        "averagepool_backward": averagepool_backward,
        "globalpool_forward": lambda A: A.mean(dim=(2, 3)),
        "batchnorm_statistics": lambda A: torch.var_mean(A, dim=(0, 2, 3), correction=0)[::-1],
        "batchnorm_forward": batchnorm,
        "batchnorm_gradients": batchnorm_gradients,
        "batchnorm_backward": batchnorm_backward,
        "batchnorm_relu": lambda *arguments: torch.relu_(batchnorm(*arguments)),
        "batchnorm_shortcut_relu": lambda *arguments: torch.relu_(batchnorm(*arguments[:-1]).add_(arguments[-1])),
        "split_heads": lambda A: A.permute(2, 0, 3, 1, 4).contiguous(),
        "merge_heads": lambda H: H.permute(1, 3, 0, 2, 4).contiguous(),
        "attention_forward": attention,
        "attention_backward": attention_backward,
        "fused_attention": lambda Q, K, V, causal: F.scaled_dot_product_attention(Q, K, V, is_causal=bool(causal)),
        "attention_step": lambda q, K, V, length: F.scaled_dot_product_attention(
            q[:, :, None], K[:, :, :length], V[:, :, :length]
        )[:, :, 0],
        "shortcut_sum": torch.add,
        "relu_delta": lambda G, A: aten.threshold_backward(G, A, 0),
        "residual_backward": lambda G, A_above, W: (D := aten.threshold_backward(G, A_above, 0)) @ W + D,
        "dropout": lambda A, rate, seed, epoch, first, layer: F.dropout(A, rate),
        "sgd_update": lambda W, G, rate: W.sub_(G, alpha=rate),
        "momentum_update": momentum,
        "adam_update": adam,
        "general_adam_update": adam,
        "rmsprop_update": rmsprop,
        "adagrad_update": adagrad,
        "confusion_matrix": lambda labels, predictions, classes: torch.bincount(
            labels * classes + predictions, minlength=classes**2
        ),
        "precision": lambda M: M.diagonal() / M.sum(dim=0).clamp(min=1),
        "recall": lambda M: M.diagonal() / M.sum(dim=1).clamp(min=1),
        "f1": lambda M: 2 * M.diagonal() / (M.sum(dim=0) + M.sum(dim=1)).clamp(min=1),
        "neuron": lambda x, w, b: torch.dot(x, w) + b,
        "perceptron_update": lambda w, x, y, a, rate: w.add_(x, alpha=rate * (y - a)),
    }.get(operation)
