"""How is a task that was learnt in one language transferred to the students of others?"""
