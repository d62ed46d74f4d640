# SPDX-License-Identifier: Apache-2.0
"""A plug-in of fdg_plugins: the method FedProto, the network ``patchnet`` and the data set ``blocks``."""
