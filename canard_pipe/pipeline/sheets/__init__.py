"""The parts of reading a sheet, each of one concept; ``canard_pipe.pipeline.sheet`` puts them together."""
