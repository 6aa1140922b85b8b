"""check() must reject wrong kernels. Each mutant below is a kernel of the package with one mistake put into its text.

Mutants marked `gpu` show on real hardware every time; races and divergence may hide there, and are for the emulator.
"""

import re
import time
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import pytest

from cuda_on_cpu import emulate
from nnclassroom.judge import check
from nncourse.catalogue import operations
from nncourse.kernels.activations import relu, sigmoid
from nncourse.kernels.confusion import confusion_matrix
from nncourse.kernels.convolution import convolution_forward
from nncourse.kernels.convolution_backpropagation import (
    convolution_bias_gradient,
    convolution_input_gradient,
    convolution_weight_gradient,
)
from nncourse.kernels.dense import dense_forward
from nncourse.kernels.update import sgd_update
from tests.tiers import many


@dataclass(frozen=True)
class Mutant:
    mistake: str
    operation: str
    kernel: str
    right: str  # some text of the kernel: its first occurrence there, or all in the file if the kernel has none
    wrong: str  # what takes its place
    gpu: bool = True  # False for a race, which a GPU may not show


DENSE_GUARD = "if (i >= batch || j >= n_out) return;"
DENSE_SUM = "z += A[i * n_in + k] * W[j * n_in + k];"
ELEMENT = "if (i < n) a[i] = "
SIGMOID = ELEMENT + "1.0f / (1.0f + expf(-z[i]));"
SOFTPLUS = "fmaxf(z[i], 0.0f) + log1pf(expf(-fabsf(z[i])))"

KEPT_THEN_MOVED = "V[i] = v;\n    W[i] -= rate * g / (sqrtf(v) + epsilon);"
MOVED_THEN_KEPT = "W[i] -= rate * g / (sqrtf(V[i]) + epsilon);\n    V[i] = v;"

WEIGHT = "W[((o * c_in + c) * k + i) * k + j]"
ROW = "int row = y * stride + i - before, column = x * stride + j - before;"
INSIDE = "row >= 0 && row < h_in && column >= 0 && column < w_in"
PIECE = "int row = blockIdx.y * TILE * stride - before, column"
AGAIN = """            }
        __syncthreads();"""

CONVOLUTION = [
    Mutant(mistake, "convolution_forward", kernel, right, wrong, gpu)
    for kernel, mistake, right, wrong, gpu in (
        ("naive", "bias forgotten", "float z = b[o];", "float z = 0.0f;", True),
        ("naive", "a row too far up", ROW, ROW.replace("i - before", "i - before - 1"), True),
        ("naive", "before and after exchanged", ROW, ROW.replace("before", "after"), True),
        ("naive", "no padding", ROW, ROW.replace(" - before", ""), True),
        ("naive", "padding takes part in the stride", ROW, ROW.replace("j - before", "j - before * stride"), True),
        ("naive", "the filter turned around", WEIGHT, WEIGHT.replace("k + i", "k + k - 1 - i"), True),
        ("naive", "the first channel's filter for all", WEIGHT, WEIGHT.replace(" + c)", ")"), True),
        ("naive", "a row goes on in the next", INSIDE, INSIDE.replace(" && column < w_in", ""), True),
        ("naive", "reads above the image", INSIDE, INSIDE.replace("row >= 0 && ", ""), False),
        ("naive", "the first channel only", "c < c_in", "c < 1", True),
        ("naive", "channels of another sample", "A[((s * c_in + c)", "A[((s + c)", True),
        ("shared", "no halo", "(TILE - 1) * stride + k", "TILE * stride", True),
        ("shared", "a load for each thread", "j < side; j += TILE", "j < TILE; j += TILE", True),
        ("shared", "no padding", PIECE, PIECE.replace(" - before", ""), True),
        ("shared", "tiles without stride", PIECE, PIECE.replace(" * stride", ""), True),
        ("shared", "the first channel's image", "A + (s * c_in + c) *", "A + s * c_in *", True),
        ("shared", "writes past the edge", "if (y < h_out && x < w_out) Z", "if (y < h_out) Z", True),
        ("shared", "never waits for the piece", "__syncthreads();  // nobody reads", "// nobody reads", False),
        ("shared", "loads the next piece too early", "__syncthreads();  // nobody loads", "// nobody loads", False),
        ("shared", "wide pieces past the array", "side <= SIDE", "side <= SIDE + 1", False),
        ("constant", "one filter for all", "min(o + n, c_out - 1) * size", "min(o, c_out - 1) * size", True),
        ("constant", "weights past the last filter", "min(o + n, c_out - 1)", "(o + n)", False),
        ("constant", "results past the last filter", "if (o + n < c_out) Z", "Z", True),
        ("constant", "more weights than there is room for", "k * k <= MOST_WEIGHTS", "k * k > 0", False),
        ("constant", "loads the next piece too early", AGAIN, AGAIN.split("\n")[0], False),
        ("implicit_gemm", "zeros forgotten after the window", "c < c_in ? i : 1 << 30", "i", False),
        ("implicit_gemm", "the first channel for all", "(c * h_in + i) * w_in", "i * w_in", True),
        ("implicit_gemm", "no zeros above", "(unsigned)(row + place.row)", "row + place.row", True),
        ("implicit_gemm", "the table does not go on", "k0 % THREADS == 0", "k0 < 0", True),
        ("implicit_gemm", "windows past the last", "min(pixel + t, batch * plane - 1)", "pixel + t", False),
        ("implicit_gemm", "samples not told apart", "window % plane / w_out", "window / w_out", True),
        ("implicit_gemm", "four pixels past the end of a sample", "by_fours(Z, plane)", "true", False),
        ("implicit_gemm", "results past the last filter", "if (filter >= c_out) continue;", "", False),
        ("implicit_gemm", "a sample's pixels in the next", "+ p % plane", "+ pixel % plane + q", True),
        ("implicit_gemm", "last tile left out", "k0 < K + DEPTH; k0 +=", "k0 < K; k0 +=", True),
        ("implicit_gemm", "no barrier", "                __syncthreads();\n", "", False),
        ("implicit_gemm", "never waits for the first tile", "    __syncthreads();\n    float z", "    float z", False),
        ("implicit_gemm", "buffer not swapped", "now = 1 - now;", "", False),
        ("implicit_gemm", "tiles of filters not counted", "% tiles * ROWS", "% tiles", True),
    )
]

SHIFTED = "int row = y * stride + i - before, column = x * stride + j - before;"
FIRST = "((row - i0) % stride + stride) % stride"
CONVOLUTION_GRADIENTS = [
    Mutant(mistake, f"convolution_{gradient}_gradient", kernel, right, wrong, gpu)
    for gradient, kernel, mistake, right, wrong, gpu in (
        ("weight", "naive", "sum, not mean", "dW[n] = sum / batch;", "dW[n] = sum;", True),
        ("weight", "naive", "mean over the pixels", "sum / batch;", "sum / (batch * h_out * w_out);", True),
        ("weight", "naive", "no padding", SHIFTED, SHIFTED.replace(" - before", ""), True),
        ("weight", "naive", "stride ignored", SHIFTED, SHIFTED.replace(" * stride", ""), True),
        ("weight", "naive", "the filter turned around", SHIFTED, SHIFTED.replace("+ i", "+ k - 1 - i"), True),
        ("weight", "naive", "a row goes on in the next", " && column < w_in", "", True),
        (
            "weight",
            "naive",
            "filters and channels exchanged",
            "% c_in, o = n / (k * k * c_in)",
            "/ c_out, o = n / (k * k) % c_out",
            True,
        ),
        ("weight", "naive", "one sample", "s < batch", "s < 1", True),
        ("weight", "tree", "pixels left out", "p += blockDim.x", "p += 2 * blockDim.x", True),
        ("weight", "tree", "a channel of D", "D + o * deltas", "D + c * deltas", True),
        ("weight", "tree", "every thread writes", "if (threadIdx.x == 0) dW", "dW", False),
        ("weight", "tree", "no barrier", "+ half];\n        __syncthreads();", "+ half];", False),
        ("weight", "tiles", "rows not counted", " + (x >= w_out)", "", True),
        ("weight", "tiles", "one filter for all", "delta[filter[e]]", "delta[filter[0]]", True),
        ("weight", "tiles", "reads outside", "inside ? pixel[shift[e]] : 0.0f", "pixel[shift[e]]", False),
        ("weight", "tiles", "weights past the last", " && n < weights", "", False),
        ("weight", "tiles", "half of the warp", "distance = 16", "distance = 8", True),
        (
            "weight",
            "tiles",
            "sums overwritten",
            "__syncthreads();              // nobody overwrites",
            "// nobody",
            False,
        ),
        ("bias", "naive", "sum, not mean", "sum / batch", "sum", True),
        ("bias", "naive", "one row only", "p < h_out * w_out", "p < w_out", True),
        ("bias", "tree", "pixels left out", "p = threadIdx.x;", "p = threadIdx.x + 1;", True),
        ("bias", "tree", "the first sample of each filter", "(s * c_out + o)", "(o * batch + s)", True),
        ("input", "naive", "stride ignored", " || y % stride != 0 || x % stride != 0", "", True),
        ("input", "naive", "a window too many", "y >= h_out", "y > h_out", True),
        (
            "input",
            "naive",
            "before forgotten",
            "row + before - i, x = column + before - j",
            "row - i, x = column - j",
            True,
        ),
        ("input", "naive", "the filter turned around", "c) * k + i) * k + j]", "c) * k + k - 1 - i) * k + j]", True),
        ("input", "naive", "filters and channels exchanged", "W[((o * c_in + c)", "W[((c * c_out + o)", True),
        ("input", "naive", "mean, not sum", "G[n] = sum;", "G[n] = sum / batch;", True),
        (
            "input",
            "shared",
            "never waits for the weights",
            "__syncthreads();  // nobody reads",
            "// nobody reads",
            False,
        ),
        ("input", "shared", "refills the weights too early", "__syncthreads();  // nobody refills", "// nobody", False),
        ("input", "shared", "the first weight for all", FIRST, "0", True),
        ("input", "shared", "windows in the wrong order", "j += stride, x--", "j += stride, x++", True),
        (
            "input",
            "shared",
            "leaves before the barrier",
            "bool inside =",
            "if (n >= batch * pixels) return; bool inside =",
            False,
        ),
        ("input", "implicit_gemm", "stride ignored", " && place.rest == rest", "", True),
        ("input", "implicit_gemm", "weights past the last", "place < 0 ? 0.0f : W[place]", "W[place]", False),
        ("input", "implicit_gemm", "channels past the last", "min(c + t / 2, c_in - 1)", "(c + t / 2)", False),
        ("input", "implicit_gemm", "steps forgotten", "if (k0 % THREADS == 0)", "if (k0 < THREADS)", True),
        ("input", "shared", "no guard for the channels", "inside && c0 + e < c_in", "inside", False),
    )
]

OF_CHANNEL = "int k = i / (h * w) % c;"
NORMALISATION = [
    Mutant(mistake, operation, kernel, right, wrong, gpu)
    for operation, kernel, mistake, right, wrong, gpu in (
        ("batchnorm_statistics", "naive", "no bounds guard", "if (k >= c) return;", "", True),
        ("batchnorm_statistics", "naive", "n - 1", "squares / count", "squares / (count - 1.0f)", True),
        ("batchnorm_statistics", "naive", "mean over the samples", "sum / count", "sum / batch", True),
        ("batchnorm_statistics", "naive", "the first sample", "s < batch", "s < 1", True),
        ("batchnorm_statistics", "naive", "samples for channels", "(s * c + k)", "(k * batch + s)", True),
        ("batchnorm_statistics", "naive", "the deviation", "= squares / count", "= sqrtf(squares / count)", True),
        ("batchnorm_statistics", "tree", "pieces left out", "number += warps", "number += 2 * warps", True),
        ("batchnorm_statistics", "tree", "the first piece only", "number % pieces * (32 * MANY)", "0", True),
        ("batchnorm_statistics", "tree", "zeros counted", "int count = min(", "int count = MANY; min(", True),
        ("batchnorm_statistics", "tree", "half of the warps", "lane < warps", "lane < warps / 2", True),
        ("batchnorm_statistics", "tree", "never waits for the warps", "__syncthreads();", "", False),
        ("batchnorm_statistics", "tree", "reads past the channel", "first + 32 * n < plane ?", "true ?", False),
        ("batchnorm_statistics", "tree", "not divided", "here.squares / here.count", "here.squares", True),
        ("batchnorm_gradients", "naive", "sum, not mean", "= sum / batch", "= sum", True),
        ("batchnorm_gradients", "naive", "not normal", " * scale_of(variance[k], epsilon)", "", True),
        ("batchnorm_gradients", "naive", "the mean forgotten", "(A[i] - mean[k])", "A[i]", True),
        ("batchnorm_gradients", "tree", "the first channel's mean", "float m = mean[k], ", "float m = mean[0], ", True),
        ("batchnorm_gradients", "tree", "all pixels of an image", "= first + 32 * n < plane", "= true", False),
        ("batchnorm_gradients", "tree", "one result for all", "dbeta[k] = sum", "dbeta[0] = sum", True),
        ("batchnorm_gradients", "tree", "never waits for the warps", "__syncthreads();", "", False),
        ("batchnorm_forward", "naive", "no bounds guard", "if (i >= batch * c * h * w) return;", "", True),
        ("batchnorm_forward", "naive", "the pixel's number", OF_CHANNEL, "int k = i % c;", True),
        ("batchnorm_forward", "naive", "the image's number", OF_CHANNEL, "int k = min(i / (h * w), c - 1);", True),
        ("batchnorm_forward", "naive", "rows for images", OF_CHANNEL, "int k = i / w % c;", True),
        ("batchnorm_forward", "naive", "beta scaled too", "epsilon) + beta[k]", "epsilon) * (1.0f + beta[k])", True),
        ("batchnorm_forward", "naive", "beta forgotten", " + beta[k]", "", True),
        ("batchnorm_forward", "naive", "gamma forgotten", "gamma[k] * ", "", True),
        ("batchnorm_forward", "pieces", "lanes side by side", "first + 32 * n", "first + n", True),
        ("batchnorm_forward", "pieces", "writes past the channel", "if (i < here.end) Z", "Z", True),
        ("batchnorm_forward", "pieces", "pieces past the last", "if (piece_of_warp() >=", "if (false && c >=", False),
        ("batchnorm_relu", "naive", "no ReLU", "fmaxf(gamma", "(gamma", True),
        (
            "batchnorm_relu",
            "pieces",
            "ReLU too early",
            "(a[n] - m) * scale + shift, 0.0f)",
            "a[n] - m, 0.0f) * scale + shift",
            True,
        ),
        ("batchnorm_shortcut_relu", "naive", "no shortcut", " + B[i]", "", True),
        (
            "batchnorm_shortcut_relu",
            "pieces",
            "added behind ReLU",
            "+ shift + b[n], 0.0f)",
            "+ shift, 0.0f) + b[n]",
            True,
        ),
        ("batchnorm_backward", "naive", "the mean's share forgotten", "dbeta[k] + ", "", True),
        ("batchnorm_backward", "naive", "the deviation's share forgotten", " + normal * dgamma[k]", "", True),
        ("batchnorm_backward", "naive", "mean over the samples", ") / (h * w));", "));", True),
        ("batchnorm_backward", "naive", "gamma forgotten", "gamma[k] * scale", "scale", True),
        ("batchnorm_backward", "naive", "the sums' sign", "D[i] - (dbeta", "D[i] + (dbeta", True),
        (
            "batchnorm_backward",
            "pieces",
            "scaled twice",
            "of_normal = dgamma[k] * scale",
            "of_normal = dgamma[k]",
            True,
        ),
        (
            "batchnorm_running",
            "naive",
            "the weights exchanged",
            "(1.0f - momentum) * running_mean",
            "momentum * running_mean",
            True,
        ),
        ("batchnorm_running", "naive", "no correction", "momentum * correction", "momentum", True),
        ("shortcut_sum", "naive", "A alone", "A[i] + B[i]", "A[i]", True),
        ("shortcut_sum", "eights", "one element a thread", "i < n) C[i]", "e == 0 && i < n) C[i]", True),
        ("shortcut_sum", "eights", "writes past the end", "if (i < n) C[i]", "C[i]", True),
        (
            "relu_delta",
            "eights",
            "blocks one upon the other",
            "blockDim.x * EACH + threadIdx.x",
            "blockDim.x + threadIdx.x",
            False,
        ),
        ("relu_delta", "naive", "at 0 too", "A[i] > 0.0f", "A[i] >= 0.0f", True),
        ("relu_delta", "naive", "where G is positive", "A[i] > 0.0f", "G[i] > 0.0f", True),
        ("globalpool_forward", "naive", "a row", "place < h * w", "place < w", True),
        ("globalpool_forward", "naive", "a sum", "sum / (h * w)", "sum", True),
        ("globalpool_backward", "naive", "no share", "] / (h * w)", "]", True),
        ("globalpool_backward", "naive", "the pixel's number", "D[t / (h * w)]", "D[t % (batch * c)]", True),
    )
]

MUTANTS = [
    # dense_forward
    Mutant("no bounds guard", "dense_forward", "naive", DENSE_GUARD, ""),
    Mutant("guard for rows only", "dense_forward", "naive", DENSE_GUARD, "if (i >= batch) return;"),
    Mutant("guard off by one", "dense_forward", "naive", DENSE_GUARD, "if (i > batch || j >= n_out) return;"),
    Mutant("last row left out", "dense_forward", "naive", DENSE_GUARD, "if (i >= batch - 1 || j >= n_out) return;"),
    Mutant("weights transposed", "dense_forward", "naive", DENSE_SUM, "z += A[i * n_in + k] * W[k * n_out + j];"),
    Mutant("bias forgotten", "dense_forward", "naive", "float z = b[j];", "float z = 0.0f;"),
    Mutant("bias of the sample", "dense_forward", "naive", "float z = b[j];", "float z = b[i % n_out];"),
    Mutant("last input left out", "dense_forward", "naive", "k < n_in; k++) z +=", "k < n_in - 1; k++) z +="),
    Mutant("reads past the row", "dense_forward", "naive", "k < n_in; k++) z +=", "k <= n_in; k++) z +="),
    Mutant("result transposed", "dense_forward", "naive", "Z[i * n_out + j] = z;", "Z[j * batch + i] = z;"),
    Mutant("keeps only the last product", "dense_forward", "naive", DENSE_SUM, DENSE_SUM.replace("+=", "=", 1)),
    Mutant(
        "damages an input",
        "dense_forward",
        "naive",
        "Z[i * n_out + j] = z;",
        "Z[i * n_out + j] = z; if (j == 0) const_cast<float*>(A)[i * n_in] = 0.0f;",
    ),
    Mutant(
        "takes every row for aligned",
        "dense_forward",
        "vectorised",
        "return n % 4 == 0 && (size_t)matrix % 16 == 0;",
        "return true;",
        gpu=False,  # there it shows too, but ends the process's use of the GPU
    ),
    Mutant("adds to what is there", "dense_forward", "naive", "Z[i * n_out + j] = z;", "Z[i * n_out + j] += z;"),
    Mutant(
        "never waits for the tiles",
        "dense_forward",
        "tiled",
        "__syncthreads();  // nobody reads the tiles before all of them are filled",
        "",
        gpu=False,
    ),
    Mutant(
        "refills the tiles too early",
        "dense_forward",
        "tiled",
        "__syncthreads();  // nobody refills them before all have read",
        "",
        gpu=False,
    ),
    Mutant(
        "last, partial tile left out",
        "dense_forward",
        "tiled",
        "k0 < n_in; k0 += TILE",
        "k0 + TILE <= n_in; k0 += TILE",
    ),
    Mutant("tile of W not padded", "dense_forward", "tiled", "j_load < n_out && k_load < n_in ?", "j_load < n_out ?"),
    Mutant(
        "leaves before the barrier",
        "dense_forward",
        "tiled",
        "float z = 0.0f;",
        "float z = 0.0f; if (i >= batch || j >= n_out) return;",
        gpu=False,
    ),
    Mutant("reads the tile by rows", "dense_forward", "tiled", "W_tile[x][k]", "W_tile[k][x]"),
    Mutant("half of the warp", "dense_forward", "coalesced", "int distance = 16;", "int distance = 8;"),
    Mutant("every lane writes its own sum", "dense_forward", "coalesced", "if (lane == 0) Z", "Z", gpu=False),
    Mutant("bias in every lane", "dense_forward", "coalesced", "float z = 0.0f;", "float z = b[j];"),
    Mutant(
        "no bounds guard",
        "dense_forward",
        "coalesced",
        "if (i >= batch) return;  // all threads of the warp, since they have one sample",
        "",
    ),
    Mutant(
        "one sample too few",
        "dense_forward",
        "tiles_1d",
        "m < COLUMN; m++) z[m] +=",
        "m < COLUMN - 1; m++) z[m] +=",
    ),
    Mutant(
        "no guard for the samples",
        "dense_forward",
        "tiles_1d",
        "if (i0 + y + m < batch && j0 + x < n_out) Z",
        "if (j0 + x < n_out) Z",
    ),
    Mutant(
        "last, partial tile left out",
        "dense_forward",
        "tiles_1d",
        "k0 < n_in; k0 += DEPTH",
        "k0 + DEPTH <= n_in; k0 += DEPTH",
    ),
    Mutant(
        "tile of A not padded",
        "dense_forward",
        "tiles_1d",
        "inside && i0 + row_load < batch ?",
        "i0 + row_load < batch ?",
    ),
    Mutant(
        "never waits for the tiles",
        "dense_forward",
        "tiles_1d",
        "        __syncthreads();\n        for (int k",
        "        for (int k",
        gpu=False,
    ),
    Mutant(
        "refills the tiles too early",
        "dense_forward",
        "tiles_1d",
        "        }\n        __syncthreads();",
        "        }",
        gpu=False,
    ),
    Mutant(
        "elements next to each other in one place",
        "dense_forward",
        "tiles_2d",
        "A_tile[y + APART * m][k]",
        "A_tile[8 * y + m][k]",
    ),
    Mutant(
        "samples and neurons exchanged",
        "dense_forward",
        "tiles_2d",
        "i0 + y + APART * m, j = j0 + x + APART * n",
        "i0 + x + APART * m, j = j0 + y + APART * n",
    ),
    Mutant("half of the tile loaded", "dense_forward", "tiles_2d", "row < SIDE; row +=", "row < SIDE / 2; row +="),
    Mutant(
        "never waits for the tiles",
        "dense_forward",
        "tiles_2d",
        "        __syncthreads();\n#pragma",
        "#pragma",
        gpu=False,
    ),
    Mutant(
        "zeros forgotten after the end",
        "dense_forward",
        "vectorised",
        "k + 1 < n ? row[k + 1] : 0.0f",
        "row[k + 1]",
    ),
    Mutant(
        "two numbers exchanged",
        "dense_forward",
        "vectorised",
        "tile[k + 2][i] = numbers.z",
        "tile[k + 2][i] = numbers.w",
    ),
    Mutant(
        "second half of the fragment is the first",
        "dense_forward",
        "vectorised",
        "read_fragment(w, &W_tile[k][x], x_apart)",
        "read_fragment(w, &W_tile[k][x], 0)",
    ),
    Mutant("half of a row loaded twice", "dense_forward", "vectorised", "k_load = t % 2 * 4", "k_load = 0", gpu=False),
    Mutant("rows past the last one", "dense_forward", "vectorised", "min(i, rows - 1)", "i", gpu=False),
    Mutant(
        "bias of one neuron for four",
        "dense_forward",
        "vectorised",
        "sums[m][n + 1] + b[neuron + 1]",
        "sums[m][n + 1] + b[neuron]",
    ),
    Mutant(
        "result by fours past the end of a row",
        "dense_forward",
        "vectorised",
        "bool fours = by_fours(Z, n_out);",
        "bool fours = true;",
        gpu=False,
    ),
    Mutant(
        "fours past the end of a row",
        "dense_forward",
        "vectorised",
        "bool at_once = fours && k0 + DEPTH <= n_in;",
        "bool at_once = fours;",
    ),
    Mutant("no guard for the neurons", "dense_forward", "vectorised", "if (neuron + c < n_out) z[c]", "z[c]"),
    Mutant(
        "refills the tiles too early",
        "dense_forward",
        "vectorised",
        "        }\n        __syncthreads();",
        "        }",
        gpu=False,
    ),
    Mutant("all warps compute one tile", "dense_forward", "warp_tiles", "warp % 4 * 32 + lane", "lane"),
    Mutant("a lane's place twice", "dense_forward", "warp_tiles", "threadIdx.x / 16 % 2 * 2", "0"),
    Mutant(
        "fragment and result disagree",
        "dense_forward",
        "warp_tiles",
        "read_fragment(a, &A_tile[k][y], y_apart)",
        "read_fragment(a, &A_tile[k][y], x_apart)",
    ),
    Mutant(
        "never waits for the tiles",
        "dense_forward",
        "warp_tiles",
        "        __syncthreads();\n#pragma",
        "#pragma",
        gpu=False,
    ),
    Mutant("buffer not swapped", "dense_forward", "double_buffered", "now = 1 - now;", "", gpu=False),
    Mutant("no barrier", "dense_forward", "double_buffered", "                __syncthreads();\n", "", gpu=False),
    Mutant(
        "never waits for the first tile",
        "dense_forward",
        "double_buffered",
        "    __syncthreads();\n    float z",
        "    float z",
        gpu=False,
    ),
    Mutant(
        "first tile read past its end",
        "dense_forward",
        "double_buffered",
        "at_once = fours && DEPTH <= n_in;",
        "at_once = fours;",
    ),
    Mutant("last tile left out", "dense_forward", "double_buffered", "k0 < n_in + DEPTH; k0 +=", "k0 < n_in; k0 +="),
    Mutant(
        "next fragment is this fragment",
        "dense_forward",
        "double_buffered",
        "&A_tile[now][(k + 1) % DEPTH][y]",
        "&A_tile[now][k][y]",
    ),
    Mutant(
        "reads the fragment it is filling",
        "dense_forward",
        "double_buffered",
        "multiply(z, a[k % 2], w[k % 2])",
        "multiply(z, a[k % 2], w[(k + 1) % 2])",
    ),
    Mutant(
        "half of the tile of W is not loaded",
        "dense_forward",
        "double_buffered",
        "W_row_2 = row_of(W, j0 + row + ROWS",
        "W_row_2 = row_of(W, j0 + row",
    ),
    Mutant(
        "swaps before all is read",
        "dense_forward",
        "double_buffered",
        "if (k == DEPTH - 1) {",
        "if (k == DEPTH - 2) {",
    ),
    # neuron
    Mutant("bias forgotten", "neuron", "tree", "partial[0] + b", "partial[0]"),
    Mutant("bias of every thread", "neuron", "tree", "partial[0] + b", "partial[0] + n * b"),
    Mutant("only one input for each thread", "neuron", "tree", "i < n; i += THREADS", "i < n; i += n"),
    Mutant("stops before the last pair", "neuron", "tree", "half > 0; half /= 2", "half > 1; half /= 2"),
    Mutant("no barrier in the tree", "neuron", "tree", "+ half];\n        __syncthreads();", "+ half];", gpu=False),
    Mutant("output minus target", "perceptron_update", "naive", "(y - a)", "(a - y)"),
    Mutant("no learning rate", "perceptron_update", "naive", "rate * (y - a)", "(y - a)"),
    Mutant("input forgotten", "perceptron_update", "naive", "(y - a) * x[i]", "(y - a)"),
    Mutant("sets, does not add", "perceptron_update", "naive", "w[i] += rate", "w[i] = rate"),
    # activations
    Mutant("no bounds guard", "sigmoid", "naive", SIGMOID, SIGMOID.replace("if (i < n) ", "")),
    Mutant("guard off by one", "sigmoid", "naive", SIGMOID, SIGMOID.replace("i < n", "i <= n")),
    Mutant("wrong sign", "sigmoid", "naive", SIGMOID, SIGMOID.replace("-z", "z")),
    Mutant("ignores the block", "sigmoid", "naive", SIGMOID, "i = threadIdx.x; " + SIGMOID),
    Mutant("overflows", "sigmoid", "naive", "1.0f / (1.0f + expf(-z[i]))", "expf(z[i]) / (1.0f + expf(z[i]))"),
    Mutant("overflows", "softplus", "naive", SOFTPLUS, "logf(1.0f + expf(z[i]))"),
    Mutant("as the handout prints it", "leaky_relu", "naive", "z[i] : ALPHA * z[i]", "z[i] : -ALPHA * z[i]"),
    Mutant(
        "slope 1 at the kink",
        "relu_derivative",
        "naive",
        ELEMENT + "z[i] > 0.0f ? 1.0f : 0.0f",
        ELEMENT + "z[i] >= 0.0f ? 1.0f : 0.0f",
    ),
    Mutant("the absolute value", "relu", "naive", "fmaxf(z[i], 0.0f);", "fabsf(z[i]);"),
    Mutant("square forgotten", "tanh_derivative", "naive", "1.0f - t * t", "1.0f - t"),
    Mutant("overflows", "softmax", "naive", "a[j] = expf(z[j] - top)", "a[j] = expf(z[j])"),
    Mutant(
        "a thread too few",
        "softmax",
        "tree",
        "j = threadIdx.x; j < n; j += THREADS) total",
        "j = threadIdx.x + 1; j < n; j += THREADS) total",
    ),
    Mutant("sums over the batch", "softmax_delta", "naive", "mean += g[k] * a[k];", "mean += g[k];"),
    # convolution
    *CONVOLUTION,
    *CONVOLUTION_GRADIENTS,
    *NORMALISATION,
    # costs
    Mutant("half forgotten", "mse", "tree", "*C = sum / (2.0f * batch);", "*C = sum / batch;"),
    Mutant("mean over all numbers", "mse", "shuffle", "*C = sum / (2.0f * batch);", "*C = sum / (2.0f * batch * n);"),
    Mutant(
        "every thread writes", "mse", "tree", "if (threadIdx.x == 0) *C = sum / (2.0f", "*C += sum / (2.0f", gpu=False
    ),
    Mutant(
        "numbers left out",
        "mse",
        "tree",
        "i += blockDim.x) {\n        float difference",
        "i += 2 * blockDim.x) {\n        float difference",
    ),
    Mutant(
        "half of the tree", "mse", "tree", "int half = blockDim.x / 2; half > 0", "int half = blockDim.x / 4; half > 0"
    ),
    Mutant("stops before the last pair", "mse", "tree", "half > 0; half /= 2", "half > 1; half /= 2"),
    Mutant("half of the warp", "mse", "shuffle", "int distance = 16;", "int distance = 8;"),
    Mutant(
        "one warp's sum only", "mse", "shuffle", "lane < blockDim.x / 32 ? partial[lane]", "lane < 1 ? partial[lane]"
    ),
    Mutant(
        "adds before all have stored",
        "mse",
        "tree",
        "partial[t] = value;\n    __syncthreads();",
        "partial[t] = value;",
        gpu=False,
    ),
    Mutant(
        "no barrier in the tree",
        "mse",
        "tree",
        "partial[t + half];\n        __syncthreads();",
        "partial[t + half];",
        gpu=False,
    ),
    Mutant(
        "a barrier for some",
        "mse",
        "tree",
        "partial[t + half];\n        __syncthreads();",
        "partial[t + half], __syncthreads();",
        gpu=False,
    ),
    Mutant(
        "squares for absolute values",
        "mae",
        "tree",
        "sum += fabsf(A[i] - Y[i]);",
        "sum += (A[i] - Y[i]) * (A[i] - Y[i]);",
    ),
    Mutant(
        "overflows", "binary_cross_entropy", "tree", "fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z)))", "logf(1.0f + expf(z))"
    ),
    Mutant("overflows", "categorical_cross_entropy", "tree", "expf(z[j] - top)", "expf(z[j])"),
    Mutant("target minus output", "mse_gradient", "naive", "G[i] = A[i] - Y[i];", "G[i] = Y[i] - A[i];"),
    Mutant("sign of zero", "mae_gradient", "naive", "difference < 0.0f ? -1.0f : 0.0f", "-1.0f"),
    # backpropagation, update, confusion
    Mutant("weights transposed", "hidden_delta", "naive", "W[j * n_in + k];", "W[k * n_out + j];"),
    Mutant("slope forgotten", "hidden_delta", "naive", "= sum * S[i * n_in + k];", "= sum;"),
    Mutant("tile of D not padded", "hidden_delta", "tiled", "i < batch && j0 + x < n_out ?", "i < batch ?"),
    Mutant("sum, not mean", "bias_gradient", "naive", "db[j] = sum / batch;", "db[j] = sum;"),
    Mutant("mean over the neurons", "bias_gradient", "naive", "db[j] = sum / batch;", "db[j] = sum / n_out;"),
    Mutant("sum, not mean", "weight_gradient", "tiled", "dW[j * n_in + k] = sum / batch;", "dW[j * n_in + k] = sum;"),
    Mutant(
        "first sample left out",
        "weight_gradient",
        "naive",
        "int i = 0; i < batch; i++) sum += D[i * n_out + j] * A",
        "int i = 1; i < batch; i++) sum += D[i * n_out + j] * A",
    ),
    Mutant("uphill", "sgd_update", "naive", "W[i] -= rate", "W[i] += rate"),
    Mutant("no learning rate", "sgd_update", "naive", "rate * G[i]", "G[i]"),
    Mutant(
        "damages the gradient",
        "sgd_update",
        "naive",
        "W[i] -= rate * G[i];",
        "{ W[i] -= rate * G[i]; const_cast<float*>(G)[i] = 0.0f; }",
    ),
    Mutant("no bounds guard", "l2_gradient", "naive", "if (i < n) ", ""),
    Mutant("lets the weights grow", "l2_gradient", "naive", "G[i] += l2", "G[i] -= l2"),
    Mutant("forgets the gradient", "l2_gradient", "naive", "G[i] += l2", "G[i] = l2"),
    Mutant("no bounds guard", "momentum_update", "naive", "if (i >= n) return;", ""),
    Mutant("guard off by one", "momentum_update", "naive", "if (i >= n) return;", "if (i >= n - 1) return;"),
    Mutant("uphill", "momentum_update", "naive", "W[i] -= rate * v;", "W[i] += rate * v;"),
    Mutant("momentum forgotten", "momentum_update", "naive", "momentum * V[i] + G[i]", "V[i] + G[i]"),
    Mutant("V not kept", "momentum_update", "naive", "V[i] = v;", ""),
    Mutant("V of the step before", "momentum_update", "naive", "rate * v;", "rate * (v - G[i]) / momentum;"),
    Mutant("no bounds guard", "adam_update", "naive", "if (i >= n) return;", ""),
    Mutant("no square root", "adam_update", "naive", "sqrtf(v / c2)", "v / c2"),
    Mutant("c1 and c2 swapped", "adam_update", "naive", "(m / c1) / (sqrtf(v / c2)", "(m / c2) / (sqrtf(v / c1)"),
    Mutant("c1 forgotten", "adam_update", "naive", "m / c1", "m"),
    Mutant("c2 forgotten", "adam_update", "naive", "v / c2", "v"),
    Mutant("V from the gradient, not its square", "adam_update", "naive", "- beta2) * g * g", "- beta2) * g"),
    Mutant("M of the step before", "adam_update", "naive", "(m / c1)", "((m - (1.0f - beta1) * g) / beta1 / c1)"),
    Mutant("V not kept", "adam_update", "naive", "V[i] = v;", ""),
    Mutant("epsilon under the root", "adam_update", "naive", "(sqrtf(v / c2) + epsilon)", "sqrtf(v / c2 + epsilon)"),
    Mutant("no epsilon", "adam_update", "naive", " + epsilon", ""),
    Mutant("M and V swapped", "adam_update", "naive", "M[i] = m;\n    V[i] = v;", "M[i] = v;\n    V[i] = m;"),
    Mutant("the usual β₁", "general_adam_update", "naive", "c2, beta1, beta2,", "c2, BETA_1, beta2,"),
    Mutant("the usual β₂", "general_adam_update", "naive", "beta1, beta2, epsilon, n);", "beta1, BETA_2, epsilon, n);"),
    Mutant("the usual ε", "general_adam_update", "naive", "beta2, epsilon, n);", "beta2, EPSILON, n);"),
    Mutant("β₁ and β₂ swapped", "general_adam_update", "naive", "c2, beta1, beta2,", "c2, beta2, beta1,"),
    *(
        Mutant(mistake, operation, "naive", right, wrong)
        for operation in ("rmsprop_update", "adagrad_update")
        for mistake, right, wrong in (
            ("no bounds guard", "if (i >= n) return;", ""),
            ("uphill", "W[i] -= rate", "W[i] += rate"),
            ("no learning rate", "rate * g", "g"),
            ("no square root", "sqrtf(v)", "v"),
            ("V from the gradient, not its square", " g * g;", " g;"),
            ("V not kept", "V[i] = v;", ""),
            ("V of the step before", KEPT_THEN_MOVED, MOVED_THEN_KEPT),
            ("ε under the root", "(sqrtf(v) + epsilon)", "sqrtf(v + epsilon)"),
            ("no ε", " + epsilon", ""),
            ("its own ε", "+ epsilon", "+ 1e-8f"),
        )
    ),
    Mutant(
        "weights of the mean swapped",
        "rmsprop_update",
        "naive",
        "beta * V[i] + (1.0f - beta)",
        "(1.0f - beta) * V[i] + beta",
    ),
    Mutant("its own β", "rmsprop_update", "naive", "beta * V[i] + (1.0f - beta)", "0.9f * V[i] + 0.1f"),
    Mutant("a sum, not a mean", "rmsprop_update", "naive", "(1.0f - beta) * g", "g"),
    Mutant("a mean, not a sum", "adagrad_update", "naive", "V[i] + g * g", "0.9f * V[i] + 0.1f * g * g"),
    Mutant("the last square only", "adagrad_update", "naive", "V[i] + g * g", "g * g"),
    # pooling
    Mutant("no bounds guard", "maxpool_forward", "naive", "if (t >= batch * c * h_out * w_out) return;", ""),
    Mutant("no thread index", "maxpool_forward", "naive", "blockIdx.x * blockDim.x + threadIdx.x", "0"),
    Mutant("ignores the block", "maxpool_forward", "naive", "blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),
    Mutant("starts at 0", "maxpool_forward", "naive", "float largest = a[place];", "float largest = 0.0f;"),
    Mutant("starts at a small number", "maxpool_forward", "naive", "largest = a[place];", "largest = -3.4e38f;"),
    Mutant("the last of equal ones", "maxpool_forward", "naive", "value > largest ||", "value >= largest ||"),
    Mutant("NaN lost", "maxpool_forward", "naive", " || (isnan(value) && !isnan(largest))", ""),
    Mutant("the last NaN", "maxpool_forward", "naive", "isnan(value) && !isnan(largest)", "isnan(value)"),
    Mutant(
        "rows and columns exchanged",
        "maxpool_forward",
        "naive",
        "x = t % w_out, y = t / w_out % h_out",
        "y = t % h_out, x = t / h_out % w_out",
    ),
    Mutant("reads by columns", "maxpool_forward", "naive", "a[row * w_in + column]", "a[column * h_in + row]"),
    Mutant(
        "place in the window",
        "maxpool_forward",
        "naive",
        "                place = row * w_in + column;",
        "                place = (row - top) * size + column - left;",
    ),
    Mutant("window not cut below", "maxpool_forward", "naive", "min(top + size, h_in)", "top + size"),
    Mutant("window not cut on the right", "maxpool_forward", "naive", "min(left + size, w_in)", "left + size"),
    Mutant("no padding", "maxpool_forward", "naive", "left = x * stride - padding", "left = x * stride"),
    Mutant("no bounds guard", "maxpool_backward", "naive", "if (t >= batch * c * h_in * w_in) return;", ""),
    Mutant("overwritten, not added", "maxpool_backward", "naive", "sum += D[window]", "sum = D[window]"),
    Mutant(
        "one window for each pixel",
        "maxpool_backward",
        "naive",
        "row < size ? 0 : (row - size) / stride + 1",
        "row / stride",
    ),
    Mutant("no padding", "maxpool_backward", "naive", "place / w_in + padding", "place / w_in"),
    Mutant(
        "windows past the last one", "maxpool_backward", "naive", "min(row / stride + 1, h_out)", "row / stride + 1"
    ),
    Mutant("all windows give", "maxpool_backward", "naive", "if (places[window] == place) sum", "sum"),
    Mutant("sum, no mean", "averagepool_forward", "naive", "sum / (size * size)", "sum"),
    Mutant("last column left out", "averagepool_forward", "naive", "j < size;", "j < size - 1;"),
    Mutant("stride is 1", "averagepool_forward", "naive", "x * stride", "x"),
    Mutant("no share", "averagepool_backward", "naive", "sum / (size * size)", "sum"),
    Mutant(
        "a window too few", "averagepool_backward", "naive", "(row - size) / stride + 1", "(row - size) / stride + 2"
    ),
    Mutant("no bounds guard", "averagepool_backward", "naive", "if (t >= batch * c * h_in * w_in) return;", ""),
    # dropout
    Mutant("no bounds guard", "dropout", "naive", "if (t >= batch * n) return;", ""),
    Mutant("no factor", "dropout", "naive", "A[t] / (1.0f - rate)", "A[t]"),
    Mutant(
        "times a mask",
        "dropout",
        "naive",
        "u >= rate ? A[t] / (1.0f - rate) : 0.0f",
        "(u >= rate) * A[t] / (1.0f - rate)",
    ),
    Mutant("keeps the others", "dropout", "naive", "u >= rate", "u < rate"),
    Mutant("u > rate", "dropout", "naive", "u >= rate", "u > rate"),
    Mutant(
        "all 32 bits, rounded", "dropout", "naive", "(words[unit % 4] >> 8) * 0x1p-24f", "words[unit % 4] * 0x1p-32f"
    ),
    Mutant("word of another unit", "dropout", "naive", "words[unit % 4]", "words[(unit + 1) % 4]"),
    Mutant("words numbered through the rows", "dropout", "naive", "words[unit % 4]", "words[t % 4]"),
    Mutant("a counter for each unit", "dropout", "naive", "unit / 4,", "unit,"),
    Mutant("first left out", "dropout", "naive", "first + row", "row"),
    Mutant(
        "epoch and layer exchanged",
        "dropout",
        "naive",
        "(unsigned)epoch, (unsigned)layer",
        "(unsigned)layer, (unsigned)epoch",
    ),
    Mutant(
        "transposed",
        "confusion_matrix",
        "atomic",
        "labels[i] * classes + predictions[i]",
        "predictions[i] * classes + labels[i]",
    ),
    Mutant(
        "sets, does not count",
        "confusion_matrix",
        "atomic",
        "atomicAdd(&M[labels[i] * classes + predictions[i]], 1)",
        "M[labels[i] * classes + predictions[i]] = 1",
    ),
    Mutant("no bounds guard", "confusion_matrix", "atomic", "if (i < n) ", ""),
    Mutant("a row, not a column", "precision", "naive", "taken += M[i * classes + j]", "taken += M[j * classes + i]"),
    Mutant(
        "divides by zero",
        "recall",
        "naive",
        "there > 0 ? (float)M[i * classes + i] / there : 0.0f",
        "(float)M[i * classes + i] / there",
    ),
    Mutant("whole numbers are divided", "f1", "naive", "2.0f * M", "2 * M"),
]
# Right in every thread order, as long as one thread runs after the other. A GPU may be lucky too.
RACES = [
    Mutant("one sum for all", "maxpool_backward", "naive", "float sum = 0", "__shared__ float sum; sum = 0", gpu=False),
    Mutant(
        "adds without atomics",
        "mse",
        "atomic",
        "atomicAdd(C, difference * difference / (2.0f * batch));",
        "*C += difference * difference / (2.0f * batch);",
        gpu=False,
    ),
    Mutant(
        "counts without atomics",
        "confusion_matrix",
        "atomic",
        "atomicAdd(&M[labels[i] * classes + predictions[i]], 1)",
        "M[labels[i] * classes + predictions[i]] += 1",
        gpu=False,
    ),
    Mutant("one sum for all", "dense_forward", "naive", "float z = b[j];", "__shared__ float z; z = b[j];", gpu=False),
    Mutant(
        "everybody writes the same",
        "mse",
        "tree",
        "if (threadIdx.x == 0) *C = sum / (2.0f",
        "*C = sum / (2.0f",
        gpu=False,
    ),
]


OTHER_KERNEL = re.compile(r'^extern "C" __global__ .*?^\}\n', re.MULTILINE | re.DOTALL)


def kernel_of(mutant: Mutant):
    """The package's kernel with the mistake in it."""
    kernel = operations()[mutant.operation][mutant.kernel]
    # lines of the text's other kernels are left empty: they would take seconds to compile
    alone = OTHER_KERNEL.sub(
        lambda match: match[0] if f" {kernel.entry}(" in match[0] else "\n" * match[0].count("\n"), kernel.source.text
    )
    kernel = replace(kernel, source=replace(kernel.source, text=alone))
    head, function, tail = kernel.source.text.partition(f" {kernel.entry}(")
    # helpers stand before the kernel, its own lines after: the mistake goes into the kernel if it has such a line
    if mutant.right in tail.split("\n}", 1)[0]:
        text = head + function + tail.replace(mutant.right, mutant.wrong, 1)
    else:
        text = kernel.source.text.replace(mutant.right, mutant.wrong)
    shared = kernel.source.before
    if text == kernel.source.text:  # what several texts share
        shared = tuple(replace(source, text=source.text.replace(mutant.right, mutant.wrong)) for source in shared)
    source = replace(kernel.source, text=text, before=shared)
    assert source != kernel.source, f"{mutant.right!r} is not in {source.file}: bring the mutant up to date"
    return replace(kernel, source=source)


def mutants(chosen):
    """Of each kernel one mistake is tried with every commit."""

    def kind(mutant: Mutant) -> tuple[str, str]:
        return mutant.operation, mutant.kernel

    def name(mutant: Mutant) -> str:
        return f"{mutant.operation}-{mutant.kernel}-{mutant.mistake}"

    return pytest.mark.parametrize("mutant", many(chosen, name, kind, attrgetter("operation")))


@mutants(MUTANTS)
def test_mutant_is_rejected_under_the_emulator(mutant):
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    kernel = kernel_of(mutant)
    verdict = check.check(kernel.operation, kernel, device="emulator")
    assert not verdict, f"accepted: {verdict}"
    assert "compile" not in verdict.line and "argument count" not in verdict.line, str(verdict)


@mutants(RACES)
def test_race_is_found_under_the_emulator(mutant):
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    kernel = kernel_of(mutant)
    lines = kernel.source.text.splitlines()
    verdict = check.check(kernel.operation, kernel, device="emulator")
    assert not verdict, f"accepted: {verdict}"
    assert "looking for races" in verdict.line and "\n" not in verdict.line
    found = int(verdict.line.split(f"{kernel.source.file}:")[1].split(":")[0])
    assert mutant.wrong in lines[found - 1] or any(sum in lines[found - 1] for sum in ("z +=", "sum +=")), verdict.line


@mutants([mutant for mutant in MUTANTS if mutant.gpu])
def test_mutant_is_rejected_on_the_gpu(mutant, gpu):
    kernel = kernel_of(mutant)
    verdict = check.check(kernel.operation, kernel, device="gpu")
    assert not verdict, f"accepted: {verdict}"


def test_lost_updates_are_seen_on_the_gpu(gpu):
    """Counting without atomics: the emulator says that counts may be lost, real hardware does lose them."""
    mutant = next(mutant for mutant in RACES if mutant.mistake == "counts without atomics")
    assert not check.check(confusion_matrix, kernel_of(mutant), device="gpu")


# ---- Python kernels


def damages_its_argument(A, W, b):
    A *= 1.0000001
    Z = A @ W.T + b
    A[0, 0] = 7
    return Z


def slow_and_wrong_type(A, W, b):
    return A.astype(np.float64) @ W.T + b


def half_precision(A, W, b):
    return (A.astype(np.float16) @ W.T.astype(np.float16) + b).astype(np.float32)


convolve = convolution_forward["numpy"]


def continues_the_edges(A, W, b, stride, before, after):
    sides = (before, after)
    return convolve(np.pad(A, ((0, 0), (0, 0), sides, sides), mode="edge"), W, b, stride, 0, 0)


def skips_after_padding_only(A, W, b, stride, before, after):
    Z = convolve(A, W, b, 1, before, after)
    return Z[:, :, stride - 1 :: stride, stride - 1 :: stride].copy() if Z.shape[2:] > (stride, stride) else Z


WRONG_PYTHON = [
    ("the filter turned around", convolution_forward, lambda A, W, *more: convolve(A, W[:, :, ::-1, ::-1], *more)),
    ("the filter transposed", convolution_forward, lambda A, W, *more: convolve(A, W.swapaxes(2, 3), *more)),
    ("before and after exchanged", convolution_forward, lambda A, W, b, k, m, n: convolve(A, W, b, k, n, m)),
    ("all padding in front", convolution_forward, lambda A, W, b, k, m, n: convolve(A, W, b, k, m + n, 0)),
    ("no bias", convolution_forward, lambda A, W, b, *more: convolve(A, W, np.zeros_like(b), *more)),
    ("the bias of another filter", convolution_forward, lambda A, W, b, *more: convolve(A, W, np.roll(b, 1), *more)),
    ("the first channel only", convolution_forward, lambda A, W, *more: convolve(A[:, :1], W[:, :1].copy(), *more)),
    ("the edges continued", convolution_forward, continues_the_edges),
    ("the wrong one of `stride` windows", convolution_forward, skips_after_padding_only),
    ("bias forgotten", dense_forward, lambda A, W, b: A @ W.T),
    (
        "weights transposed where square",
        dense_forward,
        lambda A, W, b: A @ (W if W.shape[0] == W.shape[1] else W.T) + b,
    ),
    ("result transposed", dense_forward, lambda A, W, b: (A @ W.T + b).T),
    ("bias as a column", dense_forward, lambda A, W, b: A @ W.T + b[:, None] if len(A) == len(b) else A @ W.T + b),
    ("damages its argument", dense_forward, damages_its_argument),
    ("float64", dense_forward, slow_and_wrong_type),
    ("half precision inside", dense_forward, half_precision),
    ("returns nothing", dense_forward, lambda A, W, b: None),
    ("raises", dense_forward, lambda A, W, b: A @ W + b),
    ("one number", dense_forward, lambda A, W, b: np.float32(0)),
    ("overflows to NaN", sigmoid, lambda z: np.exp(z) / (1 + np.exp(z))),
    ("a list", relu, lambda z: [max(0.0, float(x)) for x in z.flat]),
    ("NaN at zero", relu, lambda z: z * (z > 0) / (z != 0)),
    ("leaves its argument as it was", sgd_update, lambda W, G, rate: W - np.float32(rate) * G),
    ("gives nothing back", sgd_update, lambda W, G, rate: np.subtract(W, rate * G, out=W)[:0]),
    ("does nothing", sgd_update, lambda W, G, rate: W),
    ("changes the gradient", sgd_update, lambda W, G, rate: np.subtract(W, np.multiply(G, rate, out=G), out=W)),
    (
        "transposed",
        confusion_matrix,
        lambda labels, predictions, classes: confusion_matrix["numpy"](predictions, labels, classes),
    ),
    (
        "sum, not mean",
        convolution_weight_gradient,
        lambda D, A, *sizes: convolution_weight_gradient["numpy"](D, A, *sizes) * np.float32(len(D)),
    ),
    (
        "deltas and pixels exchanged",
        convolution_weight_gradient,
        lambda D, A, *sizes: convolution_weight_gradient["numpy"](D, A, *sizes).swapaxes(0, 1).copy(),
    ),
    (
        "before and after exchanged",
        convolution_weight_gradient,
        lambda D, A, k, stride, before, after: convolution_weight_gradient["numpy"](D, A, k, stride, after, before),
    ),
    ("one row only", convolution_bias_gradient, lambda D: D[:, :, 0].sum(axis=(0, 2)) / len(D)),
    ("mean over all pixels", convolution_bias_gradient, lambda D: D.mean(axis=(0, 2, 3))),
    (
        "the forward pass",
        convolution_input_gradient,
        lambda D, W, *sizes: convolution_input_gradient["numpy"](D, W[:, :, ::-1, ::-1].copy(), *sizes),
    ),
    (
        "mean, not sum",
        convolution_input_gradient,
        lambda D, W, *sizes: convolution_input_gradient["numpy"](D, W, *sizes) / len(D),
    ),
    ("counts as floats", confusion_matrix, lambda *a: confusion_matrix["numpy"](*a).astype(np.float32)),
]


@pytest.mark.parametrize(("operation", "wrong"), [pair[1:] for pair in WRONG_PYTHON], ids=[w[0] for w in WRONG_PYTHON])
def test_wrong_python_kernel_is_rejected(operation, wrong):
    verdict = check.check(operation, wrong)
    assert not verdict, f"accepted: {verdict}"
    assert "\n" not in verdict.line


def test_verdict_names_the_case_the_place_and_both_values():
    line = check.check(dense_forward, lambda A, W, b: A @ W.T).line
    for word in ("A (1, 1)", "1 of 1 wrong", "Z[0, 0]", "got", "expected"):
        assert word in line


def test_endless_cuda_kernel_ends_in_a_verdict(monkeypatch):
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    mutant = Mutant("", "sgd_update", "naive", "if (i < n)", "while (i >= 0) if (i < n)")
    monkeypatch.setattr(check, "LAUNCH_SECONDS", 1.0)
    kernel, start = kernel_of(mutant), time.monotonic()
    verdict = check.check(sgd_update, kernel, device="emulator")
    assert not verdict and "did not end within 1 s" in verdict.line
    assert time.monotonic() - start < 60
