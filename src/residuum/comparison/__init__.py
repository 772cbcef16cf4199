"""Which layers, neurons and heads of these models are alike?"""
