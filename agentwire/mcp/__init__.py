"""The parts of the Model Context Protocol that need no SDK: first answers, progress, configuration of clients."""
