"""How long does an operator take on this chip under this software?"""
