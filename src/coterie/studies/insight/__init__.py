"""What can be seen before or beside a training: how clients differ, what is sent."""
