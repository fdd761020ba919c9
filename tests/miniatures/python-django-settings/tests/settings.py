PREFIX = "shop"
