"""Honest scores and thresholds for a trained model."""

from mldecoder.calibration.api import calibrate as calibrate
from mldecoder.calibration.fit import Calibration as Calibration
from mldecoder.calibration.fit import fit_calibration as fit_calibration
from mldecoder.calibration.thresholds import Wish as Wish
