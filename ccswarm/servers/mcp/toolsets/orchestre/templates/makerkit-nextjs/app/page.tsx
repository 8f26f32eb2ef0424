import Link from "next/link";

export default function Home() {
  return (
    <>
      <h1>__PROJECT_NAME__</h1>
      <p>What it is for, in one sentence.</p>
      <p>
        <Link href="/pricing">See what it costs</Link>
      </p>
    </>
  );
}
