"""Tests of what is deployed: the image, the Compose file and the Helm chart."""
