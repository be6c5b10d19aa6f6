"""Inserts an order and finds it again, as an application would.

The address of the database is the argument, such as
mongodb://mongo.example.com:27017/?tls=true
"""

import sys

import pymongo
from pymongo.errors import PyMongoError

WAIT_MS = 5000


def ask(address: str) -> str:
    with pymongo.MongoClient(
        address, directConnection=True, serverSelectionTimeoutMS=WAIT_MS
    ) as client:
        orders = client.shop.orders
        number = orders.insert_one({"item": "tea", "count": 3}).inserted_id
        return orders.find_one({"_id": number})["item"]


try:
    print("inserted and found:", ask(sys.argv[1]))
except PyMongoError as error:
    sys.exit(f"not reached: {error}")
