"""Key-shared subscriptions: all messages of one key go to one consumer, in order."""
