import type { Metadata } from "next";
import Link from "next/link";
import type { ReactNode } from "react";
import "./globals.css";

export const metadata: Metadata = {
  title: "__PROJECT_NAME__",
  description: "What __PROJECT_NAME__ is for, in one sentence.",
};

export default function Layout({ children }: { children: ReactNode }) {
  return (
    <html lang="en">
      <body>
        <header>
          <Link href="/">__PROJECT_NAME__</Link>
          <nav>
            <Link href="/pricing">Pricing</Link>
          </nav>
        </header>
        <main>{children}</main>
      </body>
    </html>
  );
}
