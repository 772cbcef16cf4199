"""What is the smallest thing that does a task? Fewer layers, fewer neurons, and a folder to use."""

from residuum.feature_transfer.estimates import transfer_cost
from residuum.feature_transfer.estimator import FeatureTransfer
from residuum.feature_transfer.predicting import predict
from residuum.feature_transfer.transferring import Transfer, transfer

__all__ = ["FeatureTransfer", "Transfer", "predict", "transfer", "transfer_cost"]
