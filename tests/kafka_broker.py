"""A real Kafka broker for tests, in KRaft mode, on loopback. Maven fetches it into its own cache; Java runs it.

It has a listener for the tests, and one with TLS and SCRAM for the service, as a deployment has.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka import Cluster
from tests.nats import KEEPER
from tests.receiver import Authority
from tests.service import free_ports
from tests.waiting import LIMIT

VERSION = "4.1.0"
CACHE = Path(__file__).parents[1] / ".cache"
USER, PASSWORD = "gatepost", "change-me"

POM = f"""
<project>
  <modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>tests</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={directory}/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
"""


class Broker(Cluster):
    """A running broker. `servers` is the listener without authentication."""

    def __init__(self, plain: int, secure: int, authority: Path) -> None:
        super().__init__(f"127.0.0.1:{plain}")
        self.secure = f"127.0.0.1:{secure}"
        self.authority = authority
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create(self, topic: str, partitions: int) -> str:
        [done] = self.admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        done.result(LIMIT)
        return topic

    def delete_before(self, topic: str, offset: int) -> None:
        """Delete the messages of partition 0 before an offset, as the retention of the topic does."""
        [done] = self.admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        done.result(LIMIT)


@contextmanager
def running() -> Iterator[Broker]:
    """A new broker, discarded at the end."""
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", _class_path()]
    directory = Path(tempfile.mkdtemp(prefix="kafka-"))
    plain, secure, controller = free_ports(3)
    authority = Authority(directory / "tls")
    certificate, key = authority.files("127.0.0.1")
    keystore = directory / "keystore.pem"
    keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
    properties = directory / "server.properties"
    properties.write_text(
        PROPERTIES.format(plain=plain, secure=secure, controller=controller, directory=directory, keystore=keystore)
    )
    scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
    formatting = [
        "kafka.tools.StorageTool",
        "format",
        "-t",
        "4L6g3nShT-eMCtK--X86sw",
        "-c",
        str(properties),
        "-S",
        scram,
    ]
    subprocess.run([*java, *formatting], check=True, capture_output=True, timeout=LIMIT)
    with (directory / "log").open("a") as log:
        keeper = subprocess.Popen(
            ["/bin/sh", "-c", KEEPER, "sh", str(directory), *java, "kafka.Kafka", str(properties)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + LIMIT
        while not _accepts(plain) or not _accepts(secure):
            if keeper.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start:\n{(directory / 'log').read_text()[-4000:]}")
            time.sleep(0.1)
        yield Broker(plain, secure, authority.file)
    finally:
        keeper.communicate("KILL\n")
        shutil.rmtree(directory, ignore_errors=True)


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _class_path() -> str:
    """The files of the broker, which Maven fetches once."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on this machine, so there is no Kafka broker; the service does not need it")
    file = CACHE / f"kafka-{VERSION}.classpath"
    if file.exists() and all(Path(jar).exists() for jar in file.read_text().split(":")):
        return file.read_text()
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-") as made:
        pom, found = Path(made) / "pom.xml", Path(made) / "classpath"
        pom.write_text(POM)
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={found}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        if done.returncode:
            pytest.skip(f"Maven cannot fetch Kafka {VERSION}: {done.stdout.strip()[:300]}")
        written = Path(made) / "written"
        written.write_text(found.read_text().strip())
        shutil.copy(written, file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)
    return file.read_text()
