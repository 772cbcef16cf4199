"""How well do models align languages, and how well do they predict text?"""
