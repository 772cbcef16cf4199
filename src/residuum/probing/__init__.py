"""What layers and neurons know of a task, and how few of them suffice."""
