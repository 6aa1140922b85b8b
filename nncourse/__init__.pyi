from . import datasets as datasets
from . import device as device
from .backend import choose as choose
from .catalogue import find as find
from .errors import CourseError as CourseError
from .group import ALONE as ALONE
from .kernels.kernel import Kernel as Kernel
from .model import metrics as metrics
from .model.network import backpropagation as backpropagation
from .model.network import cost_of as cost_of
from .model.network import forward as forward
from .model.network import input_gradient as input_gradient
from .model.network import make_network as make_network
from .model.network import training_step as training_step
from .model.optimizers import SGD as SGD
from .model.optimizers import AdaGrad as AdaGrad
from .model.optimizers import Adam as Adam
from .model.optimizers import RMSProp as RMSProp
from .model.optimizers import constant as constant
from .model.optimizers import cosine_decay as cosine_decay
from .model.optimizers import exponential_decay as exponential_decay
from .model.optimizers import step_decay as step_decay
from .model.training import evaluate as evaluate
from .model.training import train as train

__version__: str
