# SPDX-License-Identifier: Apache-2.0
"""Names of the files that a run writes to its folder, declared once for writers and readers."""

RESULTS_FILE = "results.json"
COMPRESSED_RESULTS_FILE = "results.json.gz"  # what gzip makes of it: read, never written
LAST_FILE = "global_model.safetensors"
SELECTED_FILE = "global_model_selected.safetensors"
LOCAL_FOLDER = "local_models"  # written if the protocol sets keep_local_models
EVENTS_FOLDER = "tb_events"  # TensorBoard events; FLARE's name
SIMULATOR_FOLDER = "server/simulate_job"  # within a simulator's workspace; FLARE's name for the simulated job
