"""The paper's experiments, declared and run, its numbers beside ours."""
