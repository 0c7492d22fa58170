"""A trained model behind an address: batches of whatever comes at the same time, by several copies, with limits."""

from mldecoder.serve.settings import Settings as Settings
