# SPDX-License-Identifier: Apache-2.0
"""Names of what a run leaves in its folder, declared once for those who write and those who read."""

RESULTS_FILE = "results.json"
LAST_FILE = "global_model.safetensors"
SELECTED_FILE = "global_model_selected.safetensors"
LOCAL_FOLDER = "local_models"  # written if the protocol's keep_local_models says so
SIMULATOR_FOLDER = "server/simulate_job"  # below a simulator's workspace; FLARE's name for the simulated job
